"""What data sets tell a model, in the system prompt, about tools and how to call them.

These are the words of Hermes (https://github.com/NousResearch/Hermes-Function-Calling), also with
its instruction to think, and of the chat templates of Qwen2.5, Qwen3
(https://huggingface.co/Qwen/Qwen3-8B) and Qwen3.5. A target's template says all of that in its own
words. Each pattern is a whole instruction, so that nothing of it stays behind half cut.
"""

import re

_TOOLS = r"<tools>\s*</tools>"
_CALL = r"<tool_call>\s*</tool_call>"
_RESPONSE = r"<tool_response>\s*</tool_response>"
_PLACEHOLDERS = r"\{\s*(?:[\"'](?:name|arguments)[\"']:\s*<[\w-]+>[,\s]*){2}\}"
_EXAMPLE = rf"<tool_call>\s*(?:\{{tool_call\}}|{_PLACEHOLDERS})\s*</tool_call>"
_XML_EXAMPLE = r"<tool_call>\s*<function=example_function_name>.{0,600}?</function>\s*</tool_call>"
_CALL_SCHEMA = (
    r"\{(?=[^\n]{0,400}FunctionCall)[^\n]{0,400}?"
    r"[\"']required[\"']:\s*\[[^\]\n]{0,60}\][^\n}]{0,60}\}"
)
_REMINDERS = "|".join(
    (
        r"Function calls MUST follow the specified format: an inner <function=\.\.\.></function>"
        rf" block must be nested within {_CALL} XML tags",
        r"Required parameters MUST be specified",
        r"You may provide optional reasoning for your function call in natural language BEFORE"
        r" the function call, but NOT after",
        r"If there is no function call available, answer the question like normal with your"
        r" current knowledge and do not tell the user about function calls",
    )
)
_RIGHT_BEFORE_THE_LIST = r"\s*\Z"

_INSTRUCTIONS = (
    r"You are a function calling AI model\.",
    r"You are an expert structured information extraction AI model\.",
    r"You will be provided with documents to extract information from\.",
    r"You are also provided with the json schema to output extracted information in the function"
    rf" signatures within XML tags {_TOOLS}\.",
    rf"You are provided with function signatures within {_TOOLS} XML tags[.:]",
    r"(?:# Tools )?You may call one or more functions to assist with the user query\.",
    r"If (?:the )?available tools are not relevant in assisting (?:with )?(?:the )?user query,"
    r" just respond in natural conversational language\.",
    r"Don.t make assumptions about what values to plug into (?:functions|json schema)\.",
    r"After calling (?:&|and) executing the functions, you will be provided with function results"
    rf" within {_RESPONSE} XML tags\.",
    rf"Here are the available tools:{_RIGHT_BEFORE_THE_LIST}",
    rf"# Tools You have access to the following functions:{_RIGHT_BEFORE_THE_LIST}",
    r"Use the following pydantic model json schema for each tool call you will make:"
    rf"\s*{_CALL_SCHEMA}",
    r"For each function call,? return a json object with function name and arguments within"
    rf" {_CALL} (?:XML )?tags(?: as follows| with the following schema)?:\s*{_EXAMPLE}",
    r"For each extraction function call return a json object with function name and arguments"
    rf" followed by a <tool_call> tag with the following schema:\s*{_EXAMPLE}",
    r"For each function call return a json object, with the following pydantic model json schema"
    rf"(?: for each)?:\s*{_CALL_SCHEMA}",
    rf"Each function call should be enclosed within {_CALL} XML tags"
    rf"(?: as follows:\s*{_EXAMPLE}|\.(?:\s*Example:\s*{_EXAMPLE})?)",
    r"If you choose to call a function ONLY reply in the following format with NO suffix:"
    rf"\s*{_XML_EXAMPLE}",
    rf"<IMPORTANT>\s*Reminder:\s*(?:- (?:{_REMINDERS})\.?\s*)+</IMPORTANT>",
    r"You are a deep thinking AI, you may use extremely long chains of thought to deeply consider"
    r" the problem and deliberate with yourself via systematic reasoning processes to help come to"
    r" a correct solution prior to answering\. You should enclose your thoughts and internal"
    r" monologue inside <think>\s*</think> tags, and then provide your solution or response to the"
    r" problem\.",
)

INSTRUCTIONS = re.compile("|".join(_INSTRUCTIONS).replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)
"""Finds the instructions in a system prompt; a blank stands for any white space."""

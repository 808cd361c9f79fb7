"""Lists of tools: what is repaired, what is rejected, and what never changes."""

import json
import time
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lib.conversation import REPAIRS, Rejected
from lib.tools import tool_list

CITY = {"type": "string", "description": "name of a city"}
SCHEMA = {"type": "object", "properties": {"city": CITY}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Get the weather of a city", "parameters": SCHEMA}
TOOL = {"type": "function", "function": WEATHER}


def listed(entries):
    """Return the tools that a list comes to, and the names of what was mended."""
    repairs = []
    text = tool_list(entries, repairs)
    return json.loads(text) if text else [], set(repairs)


def tool(**function):
    return {"type": "function", "function": {"name": "get_weather", **function}}


def parameters(raw):
    """Return what becomes of the parameters of a tool, and the names of what was mended."""
    [made], repairs = listed([tool(parameters=raw)])
    return made["function"]["parameters"], repairs


def property_schema(raw):
    """Return what becomes of the schema of one property, and the names of what was mended."""
    schema, repairs = parameters({"type": "object", "properties": {"p": raw}})
    return schema["properties"]["p"], repairs


def detail(entries):
    with pytest.raises(Rejected) as rejected:
        tool_list(entries, [])
    assert rejected.value.reason == "invalid_tools"
    return rejected.value.detail


# Whatever holds for every list


WORDS = [
    *("type", "function", "name", "description", "parameters", "arguments", "properties"),
    *("required", "items", "anyOf", "enum", "default", "city", "$ref", "additionalProperties"),
]
TEXTS = st.sampled_from(
    [*WORDS, "object", "string", "str", "str, optional", "List[int]", "int | None", "", "\ud800"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)


def functions(schemas):
    return st.fixed_dictionaries(
        {"name": st.sampled_from(["f", "g", "type", "f"])},
        optional={
            "description": st.text(max_size=3) | st.none(),
            "parameters": schemas,
            "arguments": schemas,
            "required": st.lists(TEXTS, max_size=2) | st.none() | st.booleans(),
            "type": st.just("function"),
            "strict": st.booleans(),
        },
    )


def definitions(schemas):
    bare = functions(schemas)
    wrapped = st.fixed_dictionaries({"function": bare}, optional={"type": st.just("function")})
    return bare | wrapped | st.fixed_dictionaries({"function": wrapped})


@settings(max_examples=400, derandomize=True, deadline=None)
@given(entries=VALUES | st.lists(definitions(VALUES) | VALUES, max_size=3))
@example(entries="")
@example(entries="[]")
@example(entries="null")
@example(entries=[tool(parameters={"type": ["string", "null"]})])
def test_any_value_comes_to_a_list_or_is_rejected(entries):
    before = deepcopy(entries)
    repairs = []
    try:
        text = tool_list(entries, repairs)
    except Rejected as rejected:
        assert rejected.reason == "invalid_tools"
    else:
        assert set(repairs) <= set(REPAIRS)
        names = [each["function"]["name"] for each in json.loads(text or "[]")]
        assert len(names) == len(set(names))
        again = []
        assert tool_list(text, again) == text
        assert tool_list(json.loads(text or "null"), again) == text
        assert again == []
    assert json.dumps(entries) == json.dumps(before)


PYTHON_NAMES = {
    "string": ["str", "String", "str "],
    "integer": ["int", "Integer"],
    "number": ["float", "Number"],
    "boolean": ["bool"],
    "array": ["list", "List", "typing.List", "tuple"],
    "object": ["dict", "Dict", "dict[str, Any]"],
    "null": ["None", "NoneType"],
}
LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(sorted(PYTHON_NAMES))},
    optional={
        "description": st.text(max_size=4),
        "default": st.none() | st.booleans() | st.just({"type": "str", "required": True}),
        "enum": st.just(["str", "int"]),
        "minimum": st.just(1),
        "x-order": st.just({"type": "str"}),
    },
)


@st.composite
def objects(draw, inner):
    names = st.sampled_from([*WORDS, "anyOf", "not", "x", "$defs"])
    properties = draw(st.dictionaries(names, inner, max_size=4))
    schema = {"type": "object", "properties": properties}
    required = [name for name in properties if draw(st.booleans())]
    if required:
        schema["required"] = required
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans() | inner)
    return schema


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"type": st.just(["string", "null"]), "not": inner})
    ),
    max_leaves=6,
)
TOOLS = st.lists(
    st.builds(
        lambda name, schema: {
            "type": "function",
            "function": {"name": name, "description": "?", "parameters": schema, "strict": True},
        },
        st.sampled_from(["f", "g", "h"]),
        objects(SCHEMAS),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each["function"]["name"],
)
QUIET = settings(
    max_examples=120,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@QUIET
@given(tools=TOOLS)
def test_valid_tools_come_out_as_they_went_in(tools):
    repairs = []
    assert tool_list(tools, repairs) == json.dumps(tools, ensure_ascii=False)
    assert tool_list(json.dumps(tools), repairs) == json.dumps(tools, ensure_ascii=False)
    assert repairs == []


class Distorted:
    """Writes valid tools as Python-minded data sets do."""

    def __init__(self, draw):
        self.draw = draw

    def tool(self, valid):
        function = dict(valid["function"])
        schema = self.schema(function.pop("parameters"))
        flat = {}
        if schema.keys() <= {"type", "properties", "required"} and self.chance():
            if "required" in schema:
                flat["required"] = schema["required"]
            schema = schema["properties"]
        function[self.draw(st.sampled_from(["parameters", "arguments"]))] = schema
        function |= flat
        wrapped = {"function": function} | ({"type": "function"} if self.chance() else {})
        return self.draw(st.sampled_from([function, wrapped, {"function": wrapped}]))

    def schema(self, valid):
        schema = dict(valid)
        for key in ("items", "additionalProperties", "not"):
            if isinstance(schema.get(key), dict):
                schema[key] = self.schema(schema[key])
        if "anyOf" in schema:
            schema["anyOf"] = [self.schema(item) for item in schema["anyOf"]]
        if "properties" in schema:
            schema["properties"] = {n: self.schema(p) for n, p in schema["properties"].items()}
            self.mark(schema)
        if isinstance(schema.get("type"), str) and schema["type"] in PYTHON_NAMES:
            schema["type"] = self.draw(
                st.sampled_from([schema["type"], *PYTHON_NAMES[schema["type"]]])
            )
        if self.chance():
            schema["items" if "items" not in schema else "required"] = None
        return schema | ({"required": valid["required"]} if schema.get("required") else {})

    def mark(self, schema):
        """Say at each property whether it is required, in place of the list."""
        properties = schema["properties"]
        required = schema.get("required", [])
        others = [name for name in properties if name not in required]
        if others and required and all(isinstance(properties[n].get("type"), str) for n in others):
            del schema["required"]
            for name in others:
                properties[name]["type"] += ", optional"
        elif required:
            del schema["required"]
            for name in properties:
                if name in required or self.chance():
                    properties[name]["required"] = name in required

    def chance(self):
        return self.draw(st.booleans())


@QUIET
@given(tools=TOOLS, data=st.data())
def test_distorted_tools_are_mended_to_what_they_were(tools, data):
    distorted = [Distorted(data.draw).tool(each) for each in tools]
    mended, repairs = listed(distorted)
    assert mended == tools
    assert repairs <= set(REPAIRS)
    assert bool(repairs) == (json.dumps(distorted) != json.dumps(tools)), "no repair is silent"


@QUIET
@given(text=st.text("strinfloaLD[], |.'UOpn1", max_size=24) | st.text(max_size=8))
def test_any_type_is_read_as_a_valid_schema_or_rejected(text):
    try:
        [made], _ = listed([tool(parameters={"p": {"type": text, "description": "?"}})])
    except Rejected:
        return
    Draft202012Validator.check_schema(made["function"]["parameters"])


# Each strange shape


@pytest.mark.parametrize("entries", [None, [], "", "[]", "null", " [ ] "])
def test_no_tools_are_no_text(entries):
    assert tool_list(entries, []) == ""


def test_the_form_of_openai_is_kept_to_the_key():
    strict = {**TOOL, "function": {"strict": True, **WEATHER, "response": {"type": "object"}}}
    without_parameters = {"type": "function", "function": {"name": "now"}}
    assert listed([strict, without_parameters]) == ([strict, without_parameters], set())
    assert tool_list([tool(description="ä <&>")], []) == json.dumps(
        [tool(description="ä <&>")], ensure_ascii=False
    )


@pytest.mark.parametrize(
    ("entry", "repair"),
    [
        (WEATHER, "tool_wrapped"),
        ({"type": "function", **WEATHER}, "tool_wrapped"),
        ({"function": WEATHER}, "tool_wrapped"),
        ({"function": WEATHER, "type": None}, "tool_wrapped"),
        ({"type": "function", "function": TOOL}, "tool_unwrapped"),
        ({"type": "function", "function": {"function": WEATHER}}, "tool_unwrapped"),
        ({"type": "function", "function": {"type": "function", **WEATHER}}, "tool_unwrapped"),
        ({"type": "function", "function": {"function": TOOL}}, "tool_unwrapped"),
    ],
)
def test_a_function_is_wrapped_once(entry, repair):
    assert listed([entry]) == ([TOOL], {repair})
    assert list(listed([entry])[0][0]) == ["type", "function"]


def test_the_envelope_keeps_its_other_keys():
    envelope = {"input_description": "a city", **TOOL, "functionality": "?"}
    assert listed([envelope]) == ([envelope], set())
    del envelope["type"]
    assert listed([envelope]) == ([{"type": "function", **envelope}], {"tool_wrapped"})


@pytest.mark.parametrize(
    "entry",
    [
        *(None, "get_weather", 1, [], [TOOL], {}, {"function": None}, {"function": "f"}),
        {"type": "object", "properties": {}},
        {"type": "function", "function": {}},
        {"type": "function", "function": {"description": "no name"}},
        {"type": "function", "function": {"name": ""}},
        {"type": "function", "function": {"name": " "}},
        {"type": "function", "function": {"name": None}},
        {"type": "function", "function": {"name": 7}},
        {"type": "function", "function": [WEATHER]},
        {"type": "web_search", "function": WEATHER},
        {"type": "custom", **WEATHER},
        {"type": "function", "function": {"type": "object", **WEATHER}},
        {"type": "function", "function": {"description": "lost", "function": WEATHER}},
        {"type": "function", "function": {"name": "f", "function": WEATHER}},
        {"name": "f", "properties": {"city": CITY}},
        {"name": "f", "description": 5},
        {"name": "f", "description": ["a", "list"]},
    ],
)
def test_what_is_no_named_function_is_rejected(entry):
    detail([entry])
    detail([tool(name="other"), entry])


@pytest.mark.parametrize(
    "entries", [{}, TOOL, 5, True, "{", json.dumps(TOOL), '"[]"', "nul", "[" * 100_000]
)
def test_what_is_no_list_is_rejected(entries):
    detail(entries)


def test_equal_definitions_are_one_and_different_ones_are_rejected():
    other_order = {"function": dict(reversed(WEATHER.items())), "type": "function"}
    assert listed([TOOL, TOOL]) == ([TOOL], {"duplicate_tool_dropped"})
    assert listed([TOOL, other_order]) == ([TOOL], {"duplicate_tool_dropped"})
    assert listed([TOOL, WEATHER]) == ([TOOL], {"duplicate_tool_dropped", "tool_wrapped"})
    assert "get_weather is defined twice" in detail([TOOL, tool(), TOOL])
    assert listed([tool(default=True), TOOL | {"function": {**WEATHER, "name": "g"}}])[1] == set()
    assert detail([tool(strict=True), tool(strict=1)])


FLAT = {"city": {"type": "string"}, "days": {"type": "integer"}}


@pytest.mark.parametrize(
    "function",
    [
        {"parameters": FLAT},
        {"arguments": FLAT},
        {"arguments": FLAT, "parameters": None},
        {"arguments": FLAT, "parameters": {}},
        {"arguments": {"type": "object", "properties": FLAT}},
    ],
)
def test_a_map_of_parameters_becomes_a_schema(function):
    [made], repairs = listed([tool(**function)])
    assert made == tool(parameters={"type": "object", "properties": FLAT})
    assert repairs == {"parameters_rebuilt"}


def test_the_key_arguments_gives_way_where_it_stood():
    [made], _ = listed([{"name": "f", "arguments": FLAT, "description": "last"}])
    assert list(made["function"]) == ["name", "parameters", "description"]


@pytest.mark.parametrize("empty", [None, {}])
def test_parameters_that_are_nothing_become_an_empty_schema(empty):
    assert parameters(empty) == ({"type": "object", "properties": {}}, {"parameters_rebuilt"})


@pytest.mark.parametrize("name", [*WORDS, "object", "x-city", "parameters"])
def test_a_parameter_may_have_any_name(name):
    """Also one that is a word of JSON schema, alone and next to others."""
    for flat in ({name: CITY}, {"town": CITY, name: CITY}, {name: {"type": "dict"}}):
        schema, _ = parameters(flat)
        assert list(schema["properties"]) == list(flat)
        nested, repairs = parameters({"type": "object", "properties": {"place": schema}})
        assert nested["properties"]["place"] == schema
        assert repairs == set()


@pytest.mark.parametrize(
    "raw",
    [
        *("object", 5, True, [], [CITY], {"city": "string"}, {"city": None}, {"city": True}),
        {"city": CITY, "required": ["city"]},
        {"type": "string"},
        {"type": ["object", "null"]},
        {"type": "object", "city": CITY},
        {"type": "object", "properties": {"place": {"description": "?", "city": CITY}}},
        {"type": "object", "properties": ["city"]},
        {"type": "object", "properties": {"city": "string"}},
        {"type": "object", "properties": {"city": None}},
        {"type": "object", "properties": {"city": {"type": "array", "items": "string"}}},
        {"type": "object", "properties": {"city": {"anyOf": {"type": "string"}}}},
        {"type": "object", "properties": {"city": {"anyOf": ["string"]}}},
        {"type": "object", "properties": {"city": {"default": float("nan")}}},
        {"type": "object", "properties": {"city": {"maximum": float("inf")}}},
        {"type": "object", "properties": {"city": {"maximum": 10**5000}}},
        {"type": "object", "properties": {"city": {"default": {1, 2}}}},
    ],
)
def test_parameters_that_are_no_schema_are_rejected(raw):
    assert detail([tool(parameters=raw)])


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": FLAT},
        {"properties": {"type": CITY, "anything": True}},
        {"anyOf": [SCHEMA, {"type": "object", "additionalProperties": True}]},
        {"oneOf": [SCHEMA]},
        {"allOf": [SCHEMA, {"required": ["days"]}]},
        {"$ref": "#/$defs/city", "$defs": {"city": SCHEMA}},
    ],
)
def test_a_schema_need_not_say_that_it_is_an_object(schema):
    assert parameters(schema) == (schema, set())


def test_parameters_next_to_arguments_are_rejected():
    assert "both" in detail([tool(parameters=FLAT, arguments=FLAT)])


@pytest.mark.parametrize("key", ["properties", "required", "items", "enum", "type", "anyOf"])
def test_a_keyword_that_is_null_says_nothing(key):
    schema, repairs = property_schema({"description": "?", key: None, "default": None})
    assert schema == {"description": "?", "default": None}
    assert repairs == {"schema_nulls_dropped"}


def test_required_at_the_function_goes_into_the_schema():
    required = {"type": "object", "properties": FLAT, "required": ["city"]}
    [made], repairs = listed([tool(parameters=FLAT, required=["city"])])
    assert made == tool(parameters=required)
    assert repairs == {"parameters_rebuilt", "required_moved"}
    assert listed([tool(parameters=required, required=["city"])])[0] == [tool(parameters=required)]
    assert listed([tool(parameters=required, required=None)]) == (
        [tool(parameters=required)],
        {"schema_nulls_dropped"},
    )
    empty = {**required, "required": None}
    assert listed([tool(parameters=empty, required=["city"])])[0] == [tool(parameters=required)]
    for nothing in ([], None):
        assert listed([tool(required=nothing)])[0] == [tool()]
    assert "two lists" in detail([tool(parameters=required, required=["days"])])
    assert "no parameters" in detail([tool(required=["city"])])


def test_definitions_are_not_changed_in_place():
    odd = [
        tool(parameters={"type": "dict", "properties": marked(a=YES, b=OPTIONAL)["properties"]}),
        tool(name="f", parameters={"type": "object", "properties": FLAT}, required=["city"]),
        {"name": "g", "arguments": {"p": {"type": "List[int]", "items": None}}, "type": "function"},
        tool(name="h", parameters=None, arguments=FLAT, required=["days"]),
    ]
    before = deepcopy(odd)
    assert len(listed(odd)[0]) == len(odd)
    assert odd == before


@pytest.mark.parametrize("required", [True, False, "city", {"city": True}, [1], [None], 1])
def test_required_that_is_no_list_of_names_is_rejected(required):
    schema = {"type": "object", "properties": FLAT}
    detail([tool(parameters=schema, required=required)])
    detail([tool(parameters={**schema, "required": required})])


def marked(**marks):
    return {"type": "object", "properties": {n: {"type": "string"} | m for n, m in marks.items()}}


YES, NO, OPTIONAL = {"required": True}, {"required": False}, {"type": "str, optional"}


@pytest.mark.parametrize(
    ("marks", "required"),
    [
        ({"a": YES, "b": NO, "c": {}}, ["a"]),
        ({"a": NO, "b": {}}, None),
        ({"a": {}, "b": OPTIONAL}, ["a"]),
        ({"a": OPTIONAL}, None),
        ({"a": {}, "b": OPTIONAL, "c": NO}, ["a"]),
        ({"a": {}}, None),
    ],
)
def test_marks_at_the_parameters_become_one_list(marks, required):
    schema, repairs = parameters(marked(**marks))
    assert schema.get("required") == required
    assert all(item == {"type": "string"} for item in schema["properties"].values())
    assert ("required_moved" in repairs) == any(marks.values())
    flat, _ = parameters(marked(**marks)["properties"])
    assert flat == schema


def test_marks_must_agree_with_each_other_and_with_the_list():
    agreeing = marked(a=YES, b=NO, c=OPTIONAL) | {"required": ["a"]}
    assert parameters(agreeing)[0] == marked(a={}, b={}, c={}) | {"required": ["a"]}
    for marks in ({"a": YES}, {"b": NO}, {"b": OPTIONAL}):
        detail([tool(parameters=marked(**{"a": {}, "b": {}, **marks}) | {"required": ["b"]})])
    detail([tool(parameters=marked(a=OPTIONAL | YES))])
    detail([tool(parameters={"type": "object", "properties": {"a": {"items": YES}}})])


def test_a_property_called_required_is_no_mark():
    schema = marked(required={}, other={"description": "?"})
    assert parameters(schema) == (schema, set())


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("str", {"type": "string"}),
        (" Int ", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("double", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("dict", {"type": "object"}),
        ("Dict", {"type": "object"}),
        ("list", {"type": "array"}),
        ("tuple", {"type": "array"}),
        ("set", {"type": "array"}),
        ("None", {"type": "null"}),
        ("any", {}),
        ("Any", {}),
        ("int, optional", {"type": "integer"}),
        ("List[int],Optional", {"type": "array", "items": {"type": "integer"}}),
        ("List[str]", {"type": "array", "items": {"type": "string"}}),
        ("list[Any]", {"type": "array"}),
        ("Set[int]", {"type": "array", "items": {"type": "integer"}}),
        ("List[List[float]]", {"type": "array", "items": {"type": "array", "items": "number"}}),
        ("Tuple[int, ...]", {"type": "array", "items": {"type": "integer"}}),
        ("Tuple[int, str]", {"type": "array", "prefixItems": ["integer", "string"]}),
        ("Dict[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("Dict[str, Any]", {"type": "object"}),
        ("typing.Dict[str, typing.List[int]]", {"type": "object", "additionalProperties": "ints"}),
        ("Optional[str]", {"type": ["string", "null"]}),
        ("int | None", {"type": ["integer", "null"]}),
        ("int | str | None", {"type": ["integer", "string", "null"]}),
        ("Union[int, float]", {"type": ["integer", "number"]}),
        ("Union[str]", {"type": "string"}),
        ("Union[int, Optional[Union[str, int]]]", {"type": ["integer", "string", "null"]}),
        ("Optional[Any]", {}),
        ("Union[List[int], str]", {"anyOf": ["ints", {"type": "string"}]}),
        ("Optional[List[int]]", {"anyOf": ["ints", {"type": "null"}]}),
        ("List[Union[int, str]]", {"type": "array", "items": {"type": ["integer", "string"]}}),
        ("Literal['a', 1, None]", {"enum": ["a", 1, None]}),
        (["str", "null"], {"type": ["string", "null"]}),
        (["str", "string"], {"type": "string"}),
        (["string", "int | None"], {"type": ["string", "integer", "null"]}),
    ],
)
def test_types_of_python_become_those_of_json_schema(written, read):
    short = {"ints": {"type": "array", "items": {"type": "integer"}}}

    def full(value):
        if isinstance(value, str):
            return short.get(value, {"type": value})
        return {k: v if k in ("type", "enum") else inner(v) for k, v in value.items()}

    def inner(value):
        return [full(item) for item in value] if isinstance(value, list) else full(value)

    schema, repairs = property_schema({"description": "?", "type": written, "default": "str"})
    assert schema == {**full(read), "description": "?", "default": "str"}
    assert "types_renamed" in repairs


def test_what_a_schema_says_goes_before_what_its_type_implies():
    items = {"type": "integer", "description": "a year"}
    schema, _ = property_schema({"type": "List[int]", "items": items})
    assert schema == {"type": "array", "items": items}
    detail([tool(parameters={"p": {"type": "List[int] | None", "anyOf": [{"type": "array"}]}})])


def test_types_are_read_at_every_depth():
    deep = {"type": "dict", "properties": {"a": {"type": "list", "items": {"type": "str"}}}}
    pair = {"type": "array", "items": [{"type": "int"}, True]}
    assert property_schema(pair)[0]["items"] == [{"type": "integer"}, True]
    schema, _ = property_schema({"anyOf": [deep, {"$defs": {"b": {"type": "int"}}}]})
    assert schema["anyOf"][0] == {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string"}}},
    }
    assert schema["anyOf"][1] == {"$defs": {"b": {"type": "integer"}}}


@pytest.mark.parametrize(
    "written",
    [
        *("", " ", "date", "int or str", "Callable[[int], int]", "list of int", "a" * 300, "1"),
        *("List[int", "List[]", "List[int, str]", "Dict[str]", "Optional[int, str]", "str()"),
        *(
            "f'{x}'",
            "'str'",
            "Literal[{}]",
            "Literal[1.5]",
            r"Literal['\d']",
            "int" + "|int" * 50,
            "Literal[...]",
            "lambda: 0",
            "int\0",
        ),
        *("(" * 199, "[" * 199, "List[" * 30 + "int" + "]" * 30 + ")", 5, True, [], [None], {}),
    ],
)
def test_a_type_that_cannot_be_read_is_rejected(written):
    detail([tool(parameters={"type": "object", "properties": {"p": {"type": written}}})])


def test_nesting_has_an_end():
    def nested(levels):
        return {"type": "array", "items": nested(levels - 1)} if levels else {"type": "string"}

    assert property_schema(nested(80))[1] == set()
    for levels in (120, 300):
        assert "deep" in detail([tool(parameters={"p": nested(levels)})])
    default = {}
    for _ in range(50_000):
        default = {"default": default}
    assert "deep" in detail([tool(parameters={"p": default})])


def test_long_lists_and_long_texts_are_no_trap():
    names = [f"f{n}" for n in range(2000)]
    tools = [tool(parameters=SCHEMA)["function"] | {"name": name} for name in names]
    start = time.process_time()
    assert len(listed(tools + tools)[0]) == len(names)
    for filler in (" ", ",", ", ", "[", "a", ",optional ", "|"):
        detail([tool(parameters={"p": {"type": filler * 100_000}})])
    assert time.process_time() - start < 5

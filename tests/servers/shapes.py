"""An MCP server over stdio whose tools have the schemas that generators stumble over.

Usage: shapes.py
Every tool answers with what it was called with, as structured content under `received`, so that a caller sees what
reached the server.
"""

import asyncio
import json

import jsonschema
import mcp.server.stdio
from mcp import types
from mcp.server.lowlevel import Server

OBJECT = {"type": "object"}


def received(properties, required=(), definitions=None):
    """The input schema, and the output schema that has it under `received`."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    if definitions:
        schema["$defs"] = definitions
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    output = {"type": "object", "properties": {"received": inner}, "required": ["received"]}
    if definitions:
        output["$defs"] = definitions
    return schema, output


NODE = {
    "Node": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
        },
        "required": ["name"],
    }
}

SHAPES = {
    "plain": received({"text": {"type": "string"}, "count": {"type": "integer"}}, ["text"]),
    "tree": received({"root": {"$ref": "#/$defs/Node"}}, ["root"], NODE),
    "choice": received(
        {
            "value": {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            "any": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "boolean"}]},
        },
        ["value"],
    ),
    "enums": received(
        {
            "level": {"enum": ["low", "high", 3, None]},
            "kind": {"const": "fixed"},
            "several": {"type": ["string", "number"]},
        },
        ["level"],
    ),
    "nested": received(
        {
            "outer": {
                "type": "object",
                "properties": {
                    "inner": {
                        "type": "object",
                        "properties": {"deep": {"type": "array", "items": {"type": "number"}}},
                    },
                    "class": {"type": "string"},
                },
                "required": ["inner"],
            },
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "minItems": 2,
                "maxItems": 2,
            },
        },
        ["outer"],
    ),
    "all-of.named": received(
        {
            "both": {
                "allOf": [
                    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"type": "object", "properties": {"b": {"type": "integer"}}},
                ]
            },
            "from": {"type": "string"},
            "with-hyphen": {"type": "string"},
        },
        ["both"],
    ),
    "nothing": (OBJECT, None),
    "class": received({"self": {"type": "string"}, "print": {"type": "string"}}),
}

DESCRIPTIONS = {
    "plain": 'Says """ and */ and \\ back,\nover two lines.',
    "nothing": "",
}


async def list_tools(context, params):
    tools = [
        types.Tool(
            name=name,
            description=DESCRIPTIONS.get(name, f"Takes the shape {name}."),
            input_schema=schema,
            output_schema=output,
        )
        for name, (schema, output) in SHAPES.items()
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(context, params):
    arguments = params.arguments or {}
    schema, output = SHAPES[params.name]
    try:
        jsonschema.validate(arguments, schema)
    except jsonschema.ValidationError as error:
        return result(f"invalid arguments: {error.message}", is_error=True)
    answer = {"received": arguments}
    return result(json.dumps(answer), structured=answer if output else None)


def result(text, structured=None, is_error=False):
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=structured,
        is_error=is_error,
    )


async def main():
    server = Server("shapes", on_list_tools=list_tools, on_call_tool=call_tool)
    async with mcp.server.stdio.stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())

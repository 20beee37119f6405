"""Legal and illegal options of a pydantic model, generated from its schema."""

from pydantic import BaseModel, ValidationError

MOST_INT = 64  # longer windows and ranks do nothing new on small trees
_NUDGE = 1e-6  # from an open bound to a legal value


def option_sets(model: type[BaseModel], extra=()):
    """The defaults, each field at its bounds, and all floats at their lowest and highest at once.

    Text, lists and numbers without a bound keep their default. Sets that a model refuses as a whole
    are left out.
    """
    values = {name: _legal(schema) for name, schema in fields(model).items()}
    sets = [{}, *({name: value} for name, many in values.items() for value in many)]
    floats = {
        name: many
        for name, many in values.items()
        if many and all(isinstance(value, float) for value in many)
    }
    if len(floats) > 1:
        sets += [{name: pick(many) for name, many in floats.items()} for pick in (min, max)]
    legal = []
    for options in [*sets, *extra]:
        try:
            filled = model.model_validate(options)
        except ValidationError:
            continue
        if filled not in legal:
            legal.append(filled)
    return legal


def illegal_values(schema):
    """Values of one field that lie outside of its bounds, or are no value of its type at all."""
    parts = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    if len(parts) != 1:
        return [object()]
    part = parts[0]
    if "enum" in part or "const" in part:
        return ["no such value", 7.5]
    kind = part.get("type")
    if kind == "boolean":
        return ["perhaps", 7]
    if kind == "string":
        return [7, [1]]
    if kind == "array":
        return ["no list", *([[]] if part.get("minItems", 0) > 0 else [])]
    if kind not in ("number", "integer"):
        return [object()]
    step = 1 if kind == "integer" else _NUDGE
    values = ["no number", 1.5] if kind == "integer" else ["no number", float("nan"), float("inf")]
    for key, sign in (("minimum", -1), ("maximum", 1)):
        if key in part:
            values.append(part[key] + sign * step)
        if f"exclusive{key.title()}" in part:
            values.append(part[f"exclusive{key.title()}"])
    return values


def fields(model):
    """Name -> JSON schema of each option."""
    return model.model_json_schema().get("properties", {})


def numbers(schema):
    """The numeric part of a field's schema, None when it has none."""
    parts = schema.get("anyOf", [schema])
    return next((part for part in parts if part.get("type") in ("number", "integer")), None)


def _legal(schema):
    """Legal values of one field that its schema names: bounds, literals, both booleans."""
    if "anyOf" in schema:
        return [value for part in schema["anyOf"] for value in _legal(part)]
    if "enum" in schema:
        return list(schema["enum"])
    if schema.get("type") == "boolean":
        return [False, True]
    if numbers(schema) is None:
        return []
    whole = schema["type"] == "integer"
    step = 1 if whole else _NUDGE
    ends = []
    for key, sign in (("minimum", 1), ("maximum", -1)):
        if key in schema:
            ends.append(schema[key])
        elif f"exclusive{key.title()}" in schema:
            ends.append(schema[f"exclusive{key.title()}"] + sign * step)
    return [min(int(end), MOST_INT) if whole else float(end) for end in ends]

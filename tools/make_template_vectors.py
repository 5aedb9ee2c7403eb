#!/usr/bin/env python3
"""Writes tests/golden/chat-templates/vectors.jsonl: templates of our own and what Python's Jinja2 makes of them.

The environment is set up the way the transformers library does it for chat templates. Run it with Jinja2 3.1 installed:

    python3 tools/make_template_vectors.py > tests/golden/chat-templates/vectors.jsonl

Each line has name, template, input (the variables; tools and documents are none where absent) and expected or error.
An error that starts with "TemplateError: " is what the template itself raised; of the others only the fact counts.
"""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

from template_cases import BROKEN, DATA, ERRORS, EXPRESSIONS, FINE, STATEMENT_ERRORS, TEMPLATES

NOW = datetime.datetime(2026, 7, 4, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("keep"), [], [], body).set_lineno(line)

    def keep(self, caller):
        return caller()


def environment():
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda pattern: NOW.strftime(pattern)
    return env


def cases():
    yield from TEMPLATES.items()
    for expression in EXPRESSIONS:
        yield expression, "{{ " + expression + " }}"
    for expression in ERRORS:
        yield "error: " + expression, "{{ " + expression + " }}"
    for group in (BROKEN, STATEMENT_ERRORS, FINE):
        for template in group:
            yield template, template


def used_variables(template):
    return {name: value for name, value in DATA.items() if name in template}


def main():
    env = environment()
    for name, template in cases():
        row = {"name": name, "template": template, "input": used_variables(template)}
        try:
            variables = {"tools": None, "documents": None, **row["input"]}
            row["expected"] = env.from_string(template).render(**variables)
        except Exception as error:  # whatever Python raises is the expectation
            row["error"] = f"{type(error).__name__}: {error}"
        must_fail = name.startswith("error: ") or template in BROKEN + STATEMENT_ERRORS or name in ("refusal", "alternation")
        assert must_fail == ("error" in row), row
        print(json.dumps(row, ensure_ascii=True))


if __name__ == "__main__":
    main()

"""The cases of tools/make_template_vectors.py: the variables, and the templates that are rendered with them."""
import pathlib

TOOL = {
    "type": "function",
    "function": {
        "name": "tide_at",
        "description": "Height of the tide <at> a \"place\" & time",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "enum": ["Brest", "Saint-Malo"]},
                "hours": {"type": "integer", "maximum": 18446744073709551615},
                "step": {"type": "number", "default": 0.5},
            },
            "required": ["place"],
        },
    },
}
CHAT = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "  When is high tide?\n"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function",
                        "function": {"name": "tide_at", "arguments": {"place": "Brest", "hours": 6, "ok": True, "x": None}}}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "tide_at", "content": "{\"height\": 7.25}"},
    {"role": "assistant", "content": "<think>easy</think>At noon, 7.25 m. \u00c9l\u00e9gant \U0001f30a"},
    {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "tomorrow?"}]},
]
DATA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_generation_prompt": True,
    "messages": CHAT,
    "tools": [TOOL],
    "numbers": [3, 1, 2, 2],
    "words": ["pear", "Apple", "fig", "apple", "\u00e9clair"],
    "people": [
        {"name": "Ada", "age": 36, "city": {"name": "London"}},
        {"name": "bob", "age": 7, "city": {"name": "paris"}},
        {"name": "Cleo", "age": 36, "city": {"name": "Paris"}},
        {"name": "dan"},
    ],
    "text": "The quick  brown\tfox\njumps over the l\u00e4zy dog",
    "odd": "tab\there 'single' \"double\" back\\slash \u0001 \u00e9 \U0001f30a \u200b <b>&",
    "map": {"b": 1, "A": [1, 2.5, "x"], "c": {"d": None, "e": True}, "items": "shadow", "0": "zero"},
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]}],
    "big": 12345678901234567890,
    "pi": 3.14159,
    "tiny": 1e-7,
    "huge": 1e22,
    "zero": 0.0,
    "empty": [],
    "nothing": None,
    "yes": True,
}

# Whole chat templates in the styles that models use.
TEMPLATES = {
    "chatml": """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}
{{- message.content | trim }}
{%- elif message.content is iterable and message.content is not mapping %}
{%- for part in message.content %}{{ part.text if part.type == 'text' else raise_exception('no images') }}{% endfor %}
{%- else %}{{ message.tool_calls | tojson }}{% endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "tools and macros": """{% macro kind(spec, depth=0) -%}
{%- if spec.type == 'object' -%}
{ {%- for name, sub in spec.properties.items() %}{{ name }}{{ '' if name in spec.required else '?' }}: {{ kind(sub, depth + 1) }}{{ ', ' if not loop.last }}{% endfor -%} }
{%- elif spec.enum is defined -%}
{{ spec.enum | map('tojson') | join(' | ') }}
{%- else -%}{{ spec.type }}{% if spec.maximum %} <= {{ spec.maximum }}{% endif %}{%- endif -%}
{%- endmacro -%}
{{ bos_token }}{% for tool in tools %}
{% set f = tool.function -%}
// {{ f.description }}
type {{ f.name }} = (_: {{ kind(f.parameters) }}) => any;
{% endfor %}
{{ tools | tojson(indent=2) }}
{{ tools[0].function | tojson }}""",
    "namespace and reverse search": """{%- set ns = namespace(last=-1, count=0, text='') -%}
{%- for message in messages[::-1] -%}
{%- set index = (messages|length - 1) - loop.index0 -%}
{%- if ns.last < 0 and message.role == 'user' and message.content is string -%}{%- set ns.last = index -%}{%- endif -%}
{%- set ns.count = ns.count + 1 -%}{%- set ns.text = ns.text ~ message.role[0] -%}
{%- endfor -%}
{{ ns.last }}/{{ ns.count }}/{{ ns.text }}/{{ ns.missing is defined }}""",
    "thinking split": """{%- for m in messages if m.role == 'assistant' and m.content %}
{%- set content = m.content %}
{%- if '</think>' in content %}
{%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
[{{ reasoning }}|{{ content }}]{% generation %}{% set inner = 1 %}{{ content | length }}{% endgeneration %}{{ inner is defined }}
{%- endfor %}""",
    "refusal": """{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('Unexpected role ' ~ m.role ~ ' at ' ~ loop.index0) }}{% endif %}{% endfor %}""",
    "alternation": """{%- for m in messages -%}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('Roles must alternate!') }}{%- endif -%}{%- endfor -%}""",
    "date": "{{ strftime_now('%d %b %Y, %H:%M') }}{% if strftime_now is defined %} {{ strftime_now('%Y-%m-%d') }}{% endif %}",
    "tool calls": """{%- for m in messages -%}{%- for call in m.tool_calls or [] -%}
<call>{{ call.function.name }}{%- for k, v in call.function.arguments|items %}
<arg name="{{ k }}">{{ v | tojson if v is mapping or v is sequence and v is not string else v | string }}</arg>{% endfor %}</call>
{%- endfor -%}{%- endfor -%}""",
    "whitespace": """  {# comment #}
  {% if true %}
    kept
  {% endif %}
a {%- if true -%}  b  {%- endif +%}
  {%+ if true %}c{% endif %}

  {{- ' d ' -}}
  e
{#- strip -#}
  f {% raw %}{{ raw }} {% if %}{% endraw %} g
  {%- raw -%}  h {{ }}  {%- endraw -%}  i
last
""",
    "recursive loop": """{% for node in tree recursive %}({{ node.v }}@{{ loop.depth }}{{ loop(node.kids) if node.kids }}){% endfor %}""",
    "loop variables": """{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {{ loop.previtem }}<{{ w }}>{{ loop.nextitem }} {{ loop.cycle('x', 'y', 'z') }} {{ loop.changed(w | lower) }}
{% else %}never{% endfor %}{% for w in empty %}never{% else %}none{% endfor %}{% for a, (b, c) in [(1, (2, 3)), (4, [5, 6])] %}{{ a + b * c }};{% endfor %}""",
    "loop control": """{% for n in range(10) %}{% if n == 2 %}{% continue %}{% endif %}{% if n > 5 %}{% break %}{% endif %}{{ n }}{% endfor %}{% for k in map %}{{ k }}{% endfor %}{% for c in 'h\u00e9!' %}{{ c }}.{% endfor %}{% for x in missing %}x{% else %}-{% endfor %}{% for n in numbers if n is odd %}{{ loop.index }}:{{ n }}/{{ loop.length }} {% endfor %}""",
    "scopes": """{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 10 %}{{ x }} {% endfor %}{{ x }}{% if true %}{% set x = 5 %}{% endif %}{{ x }}{% with x = 7, y = x %}{{ x }}{{ y }}{% set z = 1 %}{% endwith %}{{ x }}{{ z is defined }}{% macro m() %}{{ x }}{% set x = 9 %}{% endmacro %}{{ m() }}{{ x }}""",
    "macro arguments": """{% macro f(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ f(1) }}{{ f(1, 2, 3, 4) }}{{ f(b=2, a=1, d=5) }}{% macro g(x) %}<{{ x }}{{ caller(x * 2) if caller is defined else '' }}>{% endmacro %}{% call(v) g(4) %}v={{ v }}{% endcall %}{{ f(*[1, 2], **{'c': 3}) }}{% macro h(q) %}{{ q is defined }}{{ q }}{% endmacro %}{{ h() }}""",
    "blocks": """{% set block %}a{{ 1 + 1 }}b{% endset %}{{ block | upper }}{% set shout | upper | replace('B', 'c') %}ab{% endset %}{{ shout }}{% filter trim | title %}  hello big world  {% endfilter %}""",
}

# One line each: an expression, which prints something (expressions.txt) or must fail (failing_expressions.txt).
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/chat-templates"
EXPRESSIONS = (GOLDEN / "expressions.txt").read_text(encoding="utf-8").splitlines()
ERRORS = (GOLDEN / "failing_expressions.txt").read_text(encoding="utf-8").splitlines()

# Whole templates: those that do not parse, those that parse and fail, those that render.
BROKEN = [
    "{% if x %}", "{% endif %}", "{{ x", "{{ }}", "{% for x %}{% endfor %}", "{% nosuch %}", "{{ 'abc }}", "{# open",
    "{{ x | }}", "{{ x | nosuch }}", "{{ x is nosuch }}", "{{ (1 }}", "{{ [1, }}", "{% set %}", "{% set x %}",
    "{% macro %}{% endmacro %}", "{% break %}", "{{ a b }}", "{{ 1 +* 2 }}", "{% set none = 1 %}", "{% for a in b %}{% else %}",
    "{% if a %}{% else %}{% elif b %}{% endif %}", "{{ x[1:2:3:4] }}", "{{ f(a=1, 2) }}", "{% include 'x' %}", "{{ x is defined is none }}",
]
STATEMENT_ERRORS = [
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% set a, b = [1] %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}",
    "{% set map.b = 2 %}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% for x in [1] %}{{ loop([2]) }}{% endfor %}",
    "{% call map() %}{% endcall %}", "{% filter sum %}abc{% endfilter %}",
]
FINE = [
    "{% if false %}{{ x | nosuch }}{{ y is nosuch }}{% endif %}ok", "{{ (x | nosuch) if false else 'ok' }}",
    "a\r\nb\rc\n", "{{ 'x' }}\n\n", "{%- set a = 1 -%}  {{- a -}}  ", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{{ '{{' }}{{ '%}' }}",
    "{{ {'a': {'b': 1}}['a'] }}", "{% set ns = namespace() %}{% for i in range(3) %}{% set ns.x = i %}{% endfor %}{{ ns.x }}",
    "{% set j = joiner('|') %}{% for i in range(3) %}{{ j() }}{{ i }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{% for i in range(3) %}{{ c.next() }}{% endfor %}{{ c.current }}",
    "{% set g = numbers | select('odd') %}{{ g | list }}{{ g | list }}", "{% set r %}{% for i in range(3) %}{{ i }}{% endfor %}{% endset %}{{ r }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{# a #}{# b -#}   x", "", "plain", "{", "{ {", "a{",
    "  {%- if true %} x{% endif %}", "x  {% if true %}\n\n y{% endif %}", "{% if true -%}   z   {%- endif %}  !",
    "{{- 'a' }} {{ 'b' -}} c", "{% for x in [1,2,] %}{{ x }},{% endfor %}", "{{ f(1,) if f is defined }}",
    "{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for i in [1] %}{% set x = i %}{% endfor %}{{ x is defined }}", "{% set x = [] %}{% for i in range(3) %}{% set x = x + [i] %}{% endfor %}{{ x }}",
    "{% if not words %}a{% elif numbers | length > 3 and yes %}b{% else %}c{% endif %}",
    "{% generation %}{{ 'a' }}{% endgeneration %}\nb", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{%- for m in messages if m.role == 'user' -%}{{ loop.index }}/{{ loop.length }}{{ m.content }}{%- endfor -%}",
    "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}{% call wrap('i') %}x{% endcall %}{% endcall %}",
]

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

# One line each: an expression, and what it prints.
EXPRESSIONS = """
1 + 2 * 3 ** 2 - 7 // 2 % 3
2 ** 3 ** 2
-2 ** 2
-7 // 2
-7 % 3
7 % -3
7 / 2
7.5 // 2
-7.5 % 2
6 / 3
1_000 + 0x1F + 0o17 + 0b11
1e3
1.5e-3
big + 1
big
pi
tiny
huge
zero
0.1 + 0.2
100000000000000000000.0
1e15
1e16
123456.789e3
5 - -3
+4
not true
not 1 == 2
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
'a' < 'b' <= 'b'
'a' in 'cat'
'x' not in words
2 in numbers
'b' in map
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
none == false
missing == none
missing
missing is none
'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing ~ [1, 'x']
'ab' 'cd'
'ab' * 3
3 * 'ab'
[1, 2] * 2
[1] + [2, 'three']
(1,)
()
(1, 2)
[1, [2, {'a': (3, none)}], true]
{'a': 1, 'b': [1.0, 'q']}
'yes' if numbers else 'no'
'only' if false
'a' if false else 'b' if false else 'c'
none or 0 or 'last'
1 and 2
0 and 2
numbers[0]
numbers[-1]
numbers[9]
numbers[1:]
numbers[::-1]
numbers[-3:-1]
numbers[::2]
numbers[3:0:-1]
text[:3]
text[-3:]
text[::-1][:5]
text[40]
text[38:42]
words[4][0]
'h\\u00e9llo'[1:3]
map.b
map['A'][2]
map.c.e
map['0']
map['items']
map.items() | list
map.keys() | list
map.values() | list
map.items()
map.get('b')
map.get('zz')
map.get('zz', 'dflt')
nothing.x is defined
words.0
'tab\\there'
'q\\'uote' ~ "d\\"q"
'\\x41\\u00e9\\101\\z'
odd
[odd]
odd | tojson
odd | tojson(ensure_ascii=true)
map | tojson
map | tojson(indent=4)
map | tojson(separators=(',', ':'))
map | tojson(sort_keys=true)
[] | tojson
{} | tojson(indent=2)
[[], {}, [1]] | tojson(indent=2)
(1, 2) | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
tiny | tojson
big | tojson
'plain' | tojson
words | join
words | join(', ')
people | join(';', attribute='name')
[1, none, 'a'] | join('-')
words | first
words | last
empty | first
empty | last is defined
words | length
text | length
map | length
map | count
numbers | sort
numbers | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
people[:3] | sort(attribute='age') | map(attribute='name') | list
people[:3] | sort(attribute='age,name', reverse=true) | map(attribute='name') | list
numbers | unique | list
words | unique | list
words | unique(case_sensitive=true) | list
numbers | sum
people[:3] | sum(attribute='age')
numbers | sum(start=10)
numbers | min
numbers | max
words | max
words | min(case_sensitive=true)
people[:3] | max(attribute='age')
empty | max
numbers | reverse | list
'abc' | reverse
numbers | batch(3) | list
numbers | batch(3, 'x') | list
numbers | slice(3) | list
numbers | slice(3, 'x') | list
people[:3] | groupby('age') | list
people[:3] | groupby('city.name') | map(attribute='grouper') | list
people | groupby('age', default=0) | map('first') | list
words | map('upper') | list
words | map('replace', 'p', 'P') | list
people[:3] | map(attribute='city.name') | list
people | map(attribute='age', default=0) | list
numbers | select('odd') | list
numbers | select | list
numbers | reject('gt', 1) | list
people | selectattr('age') | map(attribute='name') | list
people | selectattr('age', 'equalto', 36) | list | length
people | selectattr('age', 'defined') | list | length
people | rejectattr('age', 'defined') | map(attribute='name') | join
nothing | select('odd') | list
numbers | select('odd') is iterable
'yes' if numbers | select('gt', 100) else 'no'
map | dictsort
map | dictsort(true)
{'x': 2, 'y': 1} | dictsort(by='value')
{'x': 2, 'y': 1} | dictsort(reverse=true)
map | items | list
missing | items | list
map | list
'abc' | list
missing | list
missing | default('d')
nothing | default('d')
nothing | default('d', true)
'' | d('e', boolean=true)
missing | default
text | upper
text | lower
text | title
text | capitalize
'stra\\u00dfe \\u01c6 \\ufb01 \\u0130' | upper
'\\u0130STANBUL \\u039f\\u0394\\u039f\\u03a3 \\u03a3' | lower
'they\\'re (bold) a-b x.y' | title
'they\\'re (bold) a-b x.y'.title()
'  x y ' | trim ~ '|'
'xxabcxx' | trim('x')
text | replace('o', '0')
text | replace('o', '0', 1)
'aaa' | replace('', '-')
text | wordcount
'a\\nb\\n\\nc' | indent
'a\\nb\\n\\nc' | indent(2, true)
'a\\nb\\n\\nc' | indent('> ', blank=true)
'a\\nb\\n' | indent(first=true)
'ab' | center(7) ~ '|'
text | truncate(12)
text | truncate(12, true)
text | truncate(12, false, '!', 0)
'short' | truncate(3)
42.55 | round
42.55 | round(1, 'floor')
42.45 | round(1, 'ceil')
2.5 | round
3.5 | round | int
7 | round
-3 | abs
-3.5 | abs
'42' | int
' 42 ' | int
'42.9' | int
'x' | int
'x' | int(7)
'0x1F' | int(base=16)
'ff' | int(0, 16)
3.99 | int
none | int(5)
'3.5' | float
'x' | float
'x' | float(1.5)
7 | float
none | string ~ '!'
[1] | string
'%s and %d and %05.1f|%-4s|%4s|%x|%%|%r' % ('a', 7, 3.14159, 'l', 'r', 255, 'q')
'%(k)s=%(v)d' % {'k': 'key', 'v': 3}
'%s' % [1, 2]
'%s %s' | format('a', 1)
'%(a)s' | format(a='named')
'{} {}'.format('a', 1)
'{1} {0} {1}'.format('a', 'b')
'{x}-{y[0]}-{z.b}'.format(x=1, y=[2], z=map)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:05d} {:+d} {:,} {:x} {:#x} {:b} {:08.3f} {:.2e} {:.1%} {:g}'.format(42, 7, 1234567, 255, 255, 5, 3.14159, 12345.678, 0.256, 0.0001)
'{:.3} {!r} {{}} {:{}}'.format('abcdef', 'q', 'w', 4)
'{} {} {}'.format(1.0, none, true)
text | urlencode
{'a b': 'c&d', 'e': 1} | urlencode
'<a href="x">\\'&' | escape
'<b>' | e ~ '<i>'
('<b>' | safe) + '<i>'
'<i>' + ('<b>' | safe)
'<b>' | escape | escape
'<b>' | escape | forceescape
('<b>' | safe) ~ '<i>'
['<b>' | safe]
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
' a  b \\n c '.split()
' a  b  c '.split(none, 1)
' a  b  c '.rsplit(none, 1)
'abc'.split('x')
''.split()
''.split(',')
'a\\nb\\r\\nc\\rd\\n'.splitlines()
'a\\nb\\n'.splitlines(true)
'  x '.strip() ~ '|'
'xyabcyx'.strip('xy')
'xxabc'.lstrip('x')
'abcxx'.rstrip('x')
'\\u00a0\\u3000x\\u2028'.strip()
'hello'.startswith('he')
'hello'.startswith(('x', 'he'))
'hello'.endswith('lo')
'hello'.endswith(('x', 'y'))
'hello'.startswith('l', 2)
'hello'.find('l')
'hello'.rfind('l')
'hello'.find('z')
'h\\u00e9llo'.find('l')
'hello'.index('l')
'hello'.count('l')
'hello'.count('')
'hello'.replace('l', 'L')
'hello'.replace('l', 'L', 1)
'hello'.upper()
'Hello World'.swapcase()
'hello world'.title()
'hELLO'.capitalize()
'-'.join(['a', 'b'])
'-'.join('abc')
'42'.zfill(5) ~ '-42'.zfill(5)
'ab'.center(7, '*')
'ab'.center(6, '*') ~ 'abc'.center(6, '*')
'ab'.ljust(4, '.') ~ 'ab'.rjust(4)
'a\\tb'.expandtabs(4)
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'123'.isdigit() ~ '12a'.isdigit() ~ ''.isdigit()
'abc'.isalpha() ~ 'ab1'.isalpha() ~ 'ab1'.isalnum()
'ABC'.isupper() ~ 'abc'.islower() ~ '123'.isupper()
' \\t'.isspace() ~ 'A Title'.istitle() ~ 'a_1'.isidentifier()
'\\u00b2'.isdigit() ~ '\\u00b2'.isdecimal() ~ '\\u00bd'.isnumeric()
[1, 2, 1].count(1)
[1, 2, 1].index(2)
(1, 2).index(2)
range(3)
range(1, 10, 3) | list
range(5, 0, -2) | list
range(3) | length
range(10)[2:4] | list
dict(a=1, b='x')
dict(map, b=2).b
namespace(a=1).a
namespace(a=1)
(1.0).is_integer()
3 is odd
4 is even
9 is divisibleby 3
9 is divisibleby(4)
missing is defined
missing is undefined
nothing is none
'a' is string
map is mapping
numbers is sequence
'a' is sequence
map is sequence
map.items() is sequence
numbers is iterable
5 is iterable
5 is number
true is number
5 is integer
true is integer
5.0 is float
true is boolean
true is true
1 is true
false is false
'ab' is lower
'AB' is upper
range is callable
5 is callable
1 is sameas 1
1 is sameas true
none is sameas none
2 is in [1, 2]
3 is not in [1, 2]
3 is eq 3
3 is ne 4
3 is lt 4
3 is le 3
3 is gt 4
3 is ge(3)
3 is equalto 3
'trim' is filter
'odd' is test
'x' is escaped
not missing is defined
1 if missing is defined else 2
cycler('a', 'b').next()
'foo.bar'.split('.')[-1] | upper
(numbers | sort)[0]
[1, 2, 3][1:] | join(',') | length
(words | map('length') | list)[0]
{'a': {'b': [10, 20]}}.a.b[1]
messages[2].tool_calls[0].function.arguments | tojson
messages[0]['content'][:6] ~ messages[0].role
messages | map(attribute='role') | unique | join(',')
messages | selectattr('content', 'string') | map(attribute='content') | map('trim') | join('|')
messages | selectattr('role', 'in', ['user', 'tool']) | list | length
bos_token + eos_token
true | tojson ~ false | string
[true, false, none] | map('string') | join(' ')
'a' 'b' ~ 'c' * 2
1 - 1 | abs
-1 | abs
2 * 3 | string
loop is defined
tools[0].function.parameters.properties | length
tools[0].function.parameters.properties.items() | map('first') | join(' ')
'%c' % 'x'
none ~ ''
'a' if none is none and not false or true
nothing is not none or yes
words | map('first') | join
text.split() | map('length') | sum
text.split('\\n') | map('trim') | join('/')
""".strip("\n").split("\n")

# Every one of these must fail.
ERRORS = """
missing.attribute
missing()
missing + 1
missing[1:]
nothing.x.y
'a' + 1
[1] + 'a'
'a' + none
1 / 0
1 // 0
1 % 0
1 < 'a'
none < 1
5 | length
none | list
5 | join
map | tojson | nosuch
words.append('x')
map.update({'a': 1})
map.pop('b')
map.__class__.__name__
''.__class__.__mro__
words | map('nosuch') | list
words | select('nosuch') | list
range(1000000)
range(1, 2, 0)
'abc'.index('z')
'{} {}'.format(1)
'%d' % 'x'
'%s %s' % (1,)
'%s' % (1, 2)
words | sort(attribute='x') | upper(1)
numbers | select('odd') | tojson
missing | tojson
range(3) | tojson
map.items() | tojson
numbers | map('nosuch', 1) | list
[1, 'a'] | sort
{[1]: 2}
nothing()
5()
none.items()
'a' in 5
5 in 'abc'
- 'a'
''.join([1])
'a'.nosuch()
loop.index
caller()
raise_exception('Plain words, with "quotes" and \\u00e9')
raise_exception('n: ' ~ 3)
raise_exception()
dict([1, 2])
people | map(attribute='city.name') | list
'abc'.startswith(1)
'x' | round
'x' | abs
namespace(a=1).b.c
""".strip("\n").split("\n")

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

"""The demo model's chat template, in the manner of GLM: roles, tools, thinking on or off.

Written for this project. Thinking is on unless `enable_thinking` is false, as in GLM-4.5 and
later; the thoughts of an answer are shown to the model again only while it is still working on
the same question, that is after the last message of the user.
"""

CHAT_TEMPLATE = """\
[gMASK]<sop>
{%- macro text_of(content) -%}
{%- if content is string -%}
{{- content -}}
{%- elif content is not none and content is defined -%}
{%- for part in content -%}
{%- if part is string -%}{{- part -}}{%- elif part.type == 'text' -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- if tools -%}
<|system|>
You may call these functions, described in JSON, one per line:
<tools>
{% for tool in tools %}
{{- tool | tojson(ensure_ascii=False) }}
{% endfor -%}
</tools>
Call one in this form:
<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>
{%- endif -%}
{%- set asked = namespace(last=-1) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set asked.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<|user|>
{{ text_of(message.content) }}
{%- elif message.role in ('system', 'developer') -%}
<|system|>
{{ text_of(message.content) }}
{%- elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}<|observation|>{%- endif -%}
{{- '\\n<tool_response>\\n' ~ text_of(message.content) ~ '\\n</tool_response>' -}}
{%- elif message.role == 'assistant' -%}
{%- set thought = message.reasoning_content or message.reasoning or '' -%}
<|assistant|>
{% if thought and loop.index0 > asked.last -%}
<think>{{ thought.strip() }}</think>
{%- else -%}
<think></think>
{%- endif -%}
{{- text_of(message.content).strip() -}}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
<tool_call>{{ function.name }}
{%- for key, value in function.arguments.items() -%}
<arg_key>{{ key }}</arg_key><arg_value>
{{- value if value is string else value | tojson(ensure_ascii=False) -}}
</arg_value>
{%- endfor -%}
</tool_call>
{%- endfor -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>
{% if enable_thinking is defined and not enable_thinking -%}<think></think>
{%- else -%}<think>
{%- endif -%}
{%- endif -%}
"""

"""The backends, one module each with the functions of `opening.Module`: `openai` (servers), `hosted` (a provider's own
interface), `vllm` (this process), `replay` (replies that were recorded).

`openai` and `hosted` rest on `connections` (HTTP, one event loop), `completions` (a call's body and answer, and the
parameters that a server refuses), and `pace` (limits that it says or is given, choice of replicas);
they and `vllm` on `structure` (control tokens in texts).
"""

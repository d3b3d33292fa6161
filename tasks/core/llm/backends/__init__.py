"""The backends, one module each with the functions of `opening.Module`: `openai` (servers), `vllm` (this process),
`replay` (replies that were recorded); `scripted` answers without a model.

`openai` rests on `connections` (HTTP, one event loop), `completions` (a call's body and answer) and `pace` (limits a
minute, choice of replicas); it and `vllm` on `structure` (control tokens in texts).
"""

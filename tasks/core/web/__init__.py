"""Servers of ours, the review page and the reward server: an application goes in, and is served to whoever may ask.

`guard`: who may ask, and how (names, origins, tokens, bodies); `server`: uvicorn with limits for its connections.
"""

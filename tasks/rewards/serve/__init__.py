"""The reward server: a trainer sends rollouts, and gets rewards with all that is known of each.

Modules in reading order: `sent` (served files and requests, checked), `answered` (what clients get, and what is
remembered of a training), `waves` (rollouts of several requests judged together), `app` (the HTTP application).
"""

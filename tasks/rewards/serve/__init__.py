"""The reward server: what is sent and answered, joint batches of many clients, and what a monitor reads."""

"""What every server of ours stands on: its connections, its log, and who may ask."""

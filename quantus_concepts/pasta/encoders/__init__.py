"""Encoders of pictures and texts: open_clip, BLIP, any object, and an embedded one."""

"""Shared by all studies: command, run, output folder, tables, charts, findings, page."""

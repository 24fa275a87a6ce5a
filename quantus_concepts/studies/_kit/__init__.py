"""What every study gets: command, run, output folder, tables, charts, findings, page."""

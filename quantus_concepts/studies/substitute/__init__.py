"""The commands `substitute ...`: images of birds with one attribute replaced, made, filtered, rated and exported."""

COMMANDS = {
    "substitute generate": ("options:GenerateOptions", "generate:generate"),
    "substitute filter": ("options:FilterOptions", "filtering:filter_images"),
    "substitute sheet": ("options:VerifyOptions", "sheet:make_sheet"),
    "substitute export": ("options:ExportOptions", "export:export"),
}

"""Search over an index folder: scoring, HTTP, web page, command line."""

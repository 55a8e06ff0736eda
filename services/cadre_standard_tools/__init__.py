"""Tools that most agents can use, ready to be served: `cadre tools cadre_standard_tools`, or one module of it."""

from cadre_standard_tools.asking import ask_user
from cadre_standard_tools.files import delete_file, list_files, read_file, read_output, write_file
from cadre_standard_tools.searching import web_search
from cadre_standard_tools.visiting import visit_webpage

__all__ = [
    "ask_user",
    "delete_file",
    "list_files",
    "read_file",
    "read_output",
    "visit_webpage",
    "web_search",
    "write_file",
]

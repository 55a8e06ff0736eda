"""The language of templates and expressions: what they may hold, and what each operation costs."""

"""Journals that earlier versions of Cadre wrote, and what reads them."""

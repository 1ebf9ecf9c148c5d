"""Delivered quality: sections of figures, and a page with plots."""

"""Poolings side by side on the same images: what each gets wrong and what it costs, which to take, and a page that shows it."""

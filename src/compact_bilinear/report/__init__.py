"""From records to what is read: tables, figures, what they say about the paper's claims, and one page with all of it."""

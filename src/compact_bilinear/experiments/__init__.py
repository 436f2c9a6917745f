"""What was measured, and how it is kept: experiments write records, and everything that is shown is made from them."""

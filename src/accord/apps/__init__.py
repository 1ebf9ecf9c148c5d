"""Applications and scenarios that run on Accord as any client does."""

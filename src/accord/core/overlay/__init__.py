"""Many nodes as one: who is there, how far apart, who needs what, and the routes between them."""

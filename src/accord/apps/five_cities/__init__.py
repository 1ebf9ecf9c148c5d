"""Five nodes in five cities: links slow down and fail, a node fails, and events arrive in time."""

"""The past of persistent channels, from all nodes, before what is published now."""

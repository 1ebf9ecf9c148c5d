"""The events of one source to one channel, numbered, kept until all members have them."""

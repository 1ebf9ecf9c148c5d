"""Subscriptions are admitted only if they can be carried: needs, resources, decisions."""

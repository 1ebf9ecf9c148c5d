"""Admission control: accepts subscriptions only if resources on their paths suffice."""

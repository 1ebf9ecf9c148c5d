"""The MQTT broker: connections, sessions, fan-out, history, and requests of the features."""

"""Load generator: MQTT clients in bulk, for `accord bench`."""

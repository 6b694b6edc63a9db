"""What every role needs to run: messages in, messages out, time, logs, metrics."""

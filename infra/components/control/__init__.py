"""The stack's functions, their state, schedules and wake-up events, and interruption drills."""

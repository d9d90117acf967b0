"""The SSH side: packets, transport, channels with flow control, enrolment, live tunnels."""

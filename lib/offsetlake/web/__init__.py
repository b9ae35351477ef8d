"""What a serving process shows over HTTP."""

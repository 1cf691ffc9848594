"""Networks whose nodes hear from their neighbours alone."""

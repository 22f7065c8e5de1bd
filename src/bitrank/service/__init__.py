"""Live search over HTTP that learns from clicks: the application, its store, its learners and its page.

`bitrank serve` runs it. Nothing else imports it.
"""

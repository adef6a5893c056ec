"""Values: what is asked, what comes, what may go wrong."""

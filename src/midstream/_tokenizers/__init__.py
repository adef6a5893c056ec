"""Token ids to bytes and text to ids, for servers that speak in ids.

Ids become bytes, never text: a token may be half a character, and the session's own
decoder joins halves. Nothing here is imported before a stream needs it.
"""

"""The rules of the offset lifecycle, as functions over Arrow tables that need neither the tables of a lake nor a log.

They determine what took effect, what expires, which decisions may still be written, what is unknown, and how offsets
are set and translated.
"""

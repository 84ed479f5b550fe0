"""Defects that lock libraries have had, planted into this one: does a test find each?"""

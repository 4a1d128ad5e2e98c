"""What this product takes from AWS's documentation only, tried one by one on AWS.

``assumptions`` are the sentences, ``lab`` is what they are tried with, ``trial`` tries them and ``cleaning``
leaves nothing behind. On moto (``rehearsal``) the program itself is rehearsed; what AWS does, only AWS can
show.
"""

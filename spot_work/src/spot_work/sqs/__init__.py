"""Requests and answers through Amazon SQS, by boto3 (the extra ``sqs``)."""

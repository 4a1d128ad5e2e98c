"""The Amazon SQS transport, on boto3 (the extra ``sqs``)."""

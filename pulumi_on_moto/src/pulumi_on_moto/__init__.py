"""Run any Pulumi program of AWS resources against moto: functions and event rules included."""

// sin(x)^2 + cos(x)^2, written as five maps: fused, each element is loaded once and saved once. The answer
// is 1.
//
//   treadle run examples/sin2cos2.mlir --size n=1000003

!x = tensor<?xf32, #diagram.array<[n]>>

func.func @sin2cos2(%x: !x) -> !x attributes {sizes = #diagram.sizes<n = 10007>} {
  %sin = diagram.map (%a = %x : !x) -> !x {
    %y = math.sin %a : f32
    diagram.yield %y : f32
  }
  %cos = diagram.map (%a = %x : !x) -> !x {
    %y = math.cos %a : f32
    diagram.yield %y : f32
  }
  %sin2 = diagram.map (%a = %sin : !x) -> !x {
    %y = arith.mulf %a, %a : f32
    diagram.yield %y : f32
  }
  %cos2 = diagram.map (%a = %cos : !x) -> !x {
    %y = arith.mulf %a, %a : f32
    diagram.yield %y : f32
  }
  %one = diagram.map (%a = %sin2 : !x, %b = %cos2 : !x) -> !x {
    %y = arith.addf %a, %b : f32
    diagram.yield %y : f32
  }
  func.return %one : !x
}

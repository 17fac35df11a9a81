// Lengths that are computed from which rows hold something, and two readers of what they leave.

!X = tensor<?x?x?xf16, #diagram.array<[b, t, c]>>
!W = tensor<?x96xf16, #diagram.array<[c, o]>>
!Z = tensor<?x?x?xf32, #diagram.array<[b, t, c]>>
!h = tensor<?x?xf32, #diagram.array<[b, t]>>
!N = tensor<?xf32, #diagram.array<[b]>>
!n = tensor<?xi32, #diagram.array<[b]>>
!Y = tensor<?x?x96xf32, #diagram.array<[b, t, o]>>
!m = tensor<?x96xf32, #diagram.array<[b, o]>>

func.func @computed_lengths(%X: !X, %W: !W) -> (!m, !Y)
    attributes {sizes = #diagram.sizes<b = 3, t = 70, c = 48>} {
  %Z = diagram.cast %X : !X -> !Z
  %top = diagram.reduce max %Z over [c] : !Z -> !h
  %is = diagram.map (%a = %top : !h) -> !h {
    %some = arith.constant 1.5 : f32
    %one = arith.constant 1.0 : f32
    %none = arith.constant 0.0 : f32
    %test = arith.cmpf ogt, %a, %some : f32
    %each = arith.select %test, %one, %none : f32
    diagram.yield %each : f32
  }
  %N = diagram.reduce add %is over [t] : !h -> !N
  %n = diagram.map (%a = %N : !N) -> !n {
    %count = arith.fptosi %a : f32 to i32
    diagram.yield %count : i32
  }
  %Y = diagram.contract %X, %W over [c] accumulate f32 : !X, !W -> !Y
  %K = diagram.where %Y if "t < n[b]" with (n = %n : !n) : !Y
  %m = diagram.reduce max %K over [t] : !Y -> !m
  %P = diagram.apply @softmax(%K) over [o] : (!Y) -> !Y
  func.return %m, %P : !m, !Y
}
